"""The shared core of both clients: connections, requests, subscriptions, group membership."""
