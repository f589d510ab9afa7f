from .errors import Applied, DueqError, ErrorKind
from .model import *
from .model import Message, MessageEnd, StoredMessage
