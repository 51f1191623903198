"""How office files begin, and the words about those that cannot be read."""

ENCRYPTED = "The document is password-protected. Save a copy without a password and add that."
_OLD_OFFICE = (
    "The document is in a legacy Office format (.doc, .xls, .ppt, .msg). "
    "Save it as .docx, .xlsx, .pptx or .eml and add that file."
)
_OLD_SIGNATURE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ENCRYPTED_STREAM = "EncryptedPackage".encode("utf-16-le")
_SUFFIXES = (
    ".docx", ".docm", ".dotx", ".pptx", ".pptm", ".ppsx", ".xlsx", ".xlsm", ".xlsb", ".odt", ".ods", ".odp",
    ".doc", ".xls", ".ppt", ".msg",
)  # fmt: skip


def is_zip(content: bytes) -> bool:
    return content.startswith(b"PK\x03\x04")


def is_old_office(content: bytes) -> bool:
    return content.startswith(_OLD_SIGNATURE)


def is_office_file(name: str, content: bytes) -> bool:
    """Whether a file is of an office program, by its name and its first bytes; it may still be unreadable."""
    return name.lower().endswith(_SUFFIXES) and (is_zip(content) or is_old_office(content))


def explain_old_office(content: bytes) -> str:
    """Why a file in the older container of office programs is not read; encrypted ones are in it, too."""
    if _ENCRYPTED_STREAM in content:
        return ENCRYPTED
    return _OLD_OFFICE
