"""Single-stream speculative decoders, and late requests that join them, against plain decoding (J1-J5).

`schedule` says what is done to a decoder, `subject` what a decoder is and what is seen of one, `judge` what is right.
`python -m kvspec_diff.draining` compares the reference on every schedule of a small scope.
"""
