"""The jobs themselves: what is planned, evaluated, stored and reported, in which order."""
