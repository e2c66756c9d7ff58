"""Every kind of file of a broker, damaged in every way: what the next start makes of it.

`directory.py` writes the directories that are damaged, `cases.py` lists the damages, `reading.py`
reads what a client can read afterwards, `play.py` plays a case on one broker and judges it,
`three.py` on three. `python -m damage` plays both tables; `test_damage.py` a part of each.
"""
