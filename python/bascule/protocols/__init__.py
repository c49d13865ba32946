"""The admin side of each protocol: requests in the protocol's terms in, calls of the controller, answers out.

Each module knows one vocabulary; nothing behind it does. Data (publish, subscribe, scans) never comes here.
"""
