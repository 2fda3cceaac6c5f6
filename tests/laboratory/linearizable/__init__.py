"""Histories of real processes, judged by Porcupine: ``python -m tests.laboratory linearizable``."""
