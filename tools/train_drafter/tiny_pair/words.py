"""Word lists of the text generator."""

NAMES = "Ada Bela Cora Dino Elsa Finn Gina Hugo Ines Jana Kofi Lena Milo Nora Otto Pia Ravi Sofia Theo Uma".split()
CITIES = "Oslo Lima Rome Cairo Paris Quito Tokyo Delhi Berlin Dublin Nairobi Lisbon Vienna Havana Warsaw Seoul".split()
COLORS = "red blue green black white yellow purple orange silver brown".split()
ANIMALS = "fox owl cat dog bear hare wolf crow goat frog horse mouse otter whale snake".split()
NOUNS = "river stone cloud lamp bridge garden letter window mirror forest tower boat kitchen market road hill".split()
FOODS = "apple bread cheese honey lemon onion pepper rice salt soup tea plum carrot butter".split()
ADJECTIVES = "old small quiet bright cold strange gentle heavy tired clever brave lonely narrow golden empty".split()
ADVERBS = "slowly quietly suddenly gladly never often soon twice carefully finally".split()
PLACES = (
    "the harbour|the old mill|the station|the library|a narrow street|the mountain|the lake|the school|the attic"
    "|a small island|the orchard|the castle"
).split("|")
TIMES = "In the morning|At night|One day|After the rain|In winter|Later|That evening|Before dawn|Years ago".split("|")
PAST = {
    "found": "a {a} {n}",
    "lost": "the {n}",
    "saw": "a {a} {x}",
    "carried": "the {n} to {p}",
    "painted": "the {n} {c}",
    "followed": "the {x} to {p}",
    "opened": "the {n}",
    "bought": "some {f} at {p}",
    "heard": "a {x} near {p}",
    "forgot": "the {f}",
    "wrote": "a {a} letter",
    "dreamed": "of {p}",
}
FEELINGS = "happy|afraid|curious|proud|sad|calm|surprised|alone|free|hungry".split("|")
OBJECTS = {
    "person": "name age city email".split(),
    "book": "title author year pages".split(),
    "product": "id name price stock".split(),
    "car": "brand color year price".split(),
    "city": "name country area mayor".split(),
    "user": "id name email active".split(),
    "order": "id customer total paid".split(),
    "animal": "name kind age weight".split(),
    "student": "name grade school score".split(),
    "task": "id title owner done".split(),
}
CAPITALS = {
    "France": "Paris", "Italy": "Rome", "Norway": "Oslo", "Peru": "Lima", "Egypt": "Cairo", "Japan": "Tokyo",
    "India": "New Delhi", "Germany": "Berlin", "Ireland": "Dublin", "Kenya": "Nairobi", "Portugal": "Lisbon",
    "Austria": "Vienna", "Cuba": "Havana", "Poland": "Warsaw", "Spain": "Madrid", "Greece": "Athens",
}  # fmt: skip
SYSTEMS = (
    "You are a helpful assistant.|Answer briefly.|You are an expert programmer.|Be friendly.|Answer in plain text."
).split("|")
TOPICS = "bread|chess|the sea|bicycles|tea|gardens|music|winter|trains|sleep|maps|bees|clocks|rivers".split("|")
