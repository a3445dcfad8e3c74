"""Trains one small CNN twice on real images, fed once by stock torch and once by pinfeed; ``make demo``."""
