"""A browser for `BROWSER`: opens an address of the fake authorization server, types a name and allows.

python browser_that_allows.py URL
"""

import sys
from urllib.parse import parse_qs, urlencode, urlsplit
from urllib.request import ProxyHandler, build_opener

if __name__ == "__main__":
    parts = urlsplit(sys.argv[1])
    fields = {name: values[0] for name, values in parse_qs(parts.query).items()}
    form = urlencode({**fields, "user": "ada", "answer": "yes"}).encode()
    open_url = build_opener(ProxyHandler({})).open
    # It follows the redirect to the command.
    open_url(f"{parts.scheme}://{parts.netloc}{parts.path}", form).read()
