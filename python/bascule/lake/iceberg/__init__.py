"""Iceberg tables, written through pyiceberg: one commit for each epoch.

Needs pyiceberg and pyiceberg-core (`pip install 'bascule[lake]'`).
"""
