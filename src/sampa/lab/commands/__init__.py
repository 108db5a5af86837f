"""The command line, one file a command. The library never imports it."""
