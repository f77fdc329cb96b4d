"""Public reports as cases."""
