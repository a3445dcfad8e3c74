"""One small CNN trained twice on real photographs, fed once by stock torch and once by pinfeed; ``make demo``."""
