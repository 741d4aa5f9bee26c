"""Evaluators and their reports, without files and frameworks.

Detectors and classifiers have one evaluator each: ``update`` adds images or samples, ``merge`` joins the parts of
several processes or machines, ``compute`` makes the report. The metrics of a Runner, the ``mm-metrics`` command, the
public functions and any other loop use them, so a number in a log and in a report comes from the same object.
"""
