"""What both clients are built on: connections, requests, subscriptions, membership. Nothing here imports from above."""
