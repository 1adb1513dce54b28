"""Tables, statistics, figures and pages, from the store alone."""
