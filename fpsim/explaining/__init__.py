"""What an explanation is made of: the observation, evidence about it, mechanisms that may give it, and the verdict."""
