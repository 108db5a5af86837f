"""Methods: pure maths, one file a family. `sampa.catalog` builds optimizers from them."""
