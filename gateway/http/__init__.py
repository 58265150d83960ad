"""The HTTP/1.1 server: bytes of a socket to requests, and answers to bytes. Knows nothing of what is asked or answered.

server.py      counts connections, and ends them in order
connection.py  one connection: its requests in turn, and how it ends
patience.py    how long it waits for what comes next
outflow.py     whether the client takes what is written
reader.py      bytes -> requests, by llhttp; what is no request is refused here
request.py     a request, as it came
body.py        its body, as it arrives, unpacked
answer.py      a whole answer, in one write
stream.py      an answer that is sent piece by piece
websocket.py   a connection that became a WebSocket
"""
