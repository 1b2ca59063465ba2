"""The doors: one thin file for each verb."""
