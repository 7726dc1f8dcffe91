"""The data that flows from probes to rules to renderers: no I/O and no opinions here."""
