"""
WEB_DIRECTORY = "doc"
"""
if x:
    WEB_DIRECTORY: str = r"js"  # here
