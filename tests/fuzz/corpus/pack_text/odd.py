WEB_DIRECTORY = f"./{x}"; WEB_DIRECTORY = (
 "a"
 "b\n", b"c")
