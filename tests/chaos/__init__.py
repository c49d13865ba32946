"""What if things break?"""
