"""The admin side of each protocol: requests of a foreign vocabulary in, calls of the controller, answers out.

Each module knows one vocabulary; nothing behind it does. Data (publish, subscribe, scans) never comes here.
"""
