"""The report of a run: one self-contained HTML file from what the run left on disk.

Three steps, a module each: `data` reads the run directory (whatever of it exists), `aggregate` turns the tables
into what the page shows, `page` renders it. `charts` draws the time line as inline SVG, `words` puts evidence,
durations and verdicts into sentences.
"""
