"""What is too long for every run of the suite; ``make campaign`` or ``python -m campaign [part ...]``.

Each part is a module with a ``PART``; its figures go to ``docs/campaign.md``, and those of the parts that were not run
stay there with the date of their own.
"""
