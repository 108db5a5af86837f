"""Methods, one in a file, named like its card in docs/methods: equations, state, rounds, factory.

The equations are pure maths. `optimizer` is imported for the factory alone, which has the defaults;
factories are named like classes because users meet them where torch has classes.
"""
