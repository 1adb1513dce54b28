"""What runs inside the sandbox: a bare interpreter without site-packages, so the standard library alone.

`judge` isolates itself, starts the candidate in a process namespace of its own and runs the tests;
`candidate` executes the code of a model and answers calls. `scoring.sandbox` starts them.
"""
