"""The stepwise environment with other libraries' faces, one file per library; imports none of them and adds no rules.

Each file imports its library at the top, so importing one whose library is missing is that library's ImportError.
``shared`` and ``host`` hold what several of them need, and know none of the libraries.
"""
