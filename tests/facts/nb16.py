"""Numbers in the prose of notebook 16 that none of its cells prints."""

FIRST, WRITTEN, RESULT, TURNS = 3000, 500, 2000, 20  # tokens; of pencil 16.1
STEP = WRITTEN + RESULT
EARLIER = TURNS * (TURNS - 1) // 2
READ = TURNS * FIRST + STEP * EARLIER
NEW = FIRST + STEP * (TURNS - 1)
PRICE_IN, PRICE_OUT, PRICE_OLD = 3e-6, 15e-6, 0.3e-6  # dollars a token
WRITING = TURNS * WRITTEN * PRICE_OUT
BILL = READ * PRICE_IN + WRITING
REUSED = NEW * PRICE_IN + (READ - NEW) * PRICE_OLD + WRITING
GOOD = 0.95  # of pencil 16.2

COMPUTED = {
    "1.76 dollars": BILL,
    "120 of 120": 4 * 30,
    "120 right answers of 120": 4 * 30,
    "the other 29": 48.3 - 19.3,  # of the printed means
    "ten-digit": 10,
    # pencil 16.1
    "2,500 · 190": STEP,
    "· 190": EARLIER,
    "535,000 tokens": READ,
    "1.605 dollars": READ * PRICE_IN,
    "10,000 written": TURNS * WRITTEN,
    "cost 0.15 dollars": WRITING,
    "1.755 dollars": BILL,
    "+ 19": TURNS - 1,
    "50,500, written": NEW,
    "for 0.15 dollars": NEW * PRICE_IN,
    "484,500 cost": READ - NEW,
    "0.145 dollars": (READ - NEW) * PRICE_OLD,
    "0.45 dollars": REUSED,
    # pencil 16.2
    "is 0.36": GOOD**TURNS,
    "0.9947": 0.9 ** (1 / TURNS),
    "0.0025": (1 - GOOD) ** 2,
    "with 0.951": (1 - (1 - GOOD) ** 2) ** TURNS,
}

KNOWN = {
    "200,000 brackets": "what the check tries",
    "3,000 tokens": "an assumption of the problem",
    "500 tokens": "an assumption of the problem",
    "20 turns": "an assumption of the problem",
    "15 per million": "an assumption of the problem",
    "20 · 3,000": "an assumption of the problem",
    "3,000 + 19": "an assumption of the problem",
    "· 2,500": "500 and 2,000 of the problem",
    "probability 0.95": "an assumption of the problem",
    "20 steps": "an assumption of the problem",
    "0.95 to the power of 20": "an assumption of the problem",
    "For 0.9": "an assumption of the problem",
    "0.9 to the power of 1/20": "an assumption of the problem",
    "0.05 · 0.05": "the rest of 0.95",
}
