"""Code of others that the page uses: uPlot 1.6.32 (npm `uplot`), MIT, its licence beside it."""
