"""The training system: data, models, recipes and a readable loop. The library never imports it."""
