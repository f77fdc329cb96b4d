"""Real routines: what runs here, and which strategy predicts its bits."""
