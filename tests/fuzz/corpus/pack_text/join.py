import os
WEB_DIRECTORY = os.path.join(os.path.dirname(__file__), "web", 'js')
