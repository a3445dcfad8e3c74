"""Programs that show pinfeed at work."""
