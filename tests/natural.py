"""Small generated files in the formats of heart, ist and schools: the same columns, invented people."""

import csv
import io

import numpy as np

from bonafed.learning.data.real_federations import hospitals, schools


def table(header, rows):
    """The text of a CSV file."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows] if header else rows)
    return text.getvalue()


def patients(rng, count, missing=0.0):
    """Rows of a file of heart: illness follows from age, so that there is something to learn."""
    for _ in range(count):
        age = int(rng.integers(30, 75))
        ill = int(rng.random() < 1 / (1 + np.exp(-(age - 52) / 6)))
        row = [
            age, rng.integers(2), rng.integers(1, 5), rng.integers(100, 180), rng.integers(150, 350),
            rng.integers(2), rng.integers(3), rng.integers(100, 190), rng.integers(2),
            f"{rng.random() * 3:.1f}", "?", "?", "?", ill * rng.integers(1, 5),
        ]  # fmt: skip
        for column in (3, 4, 5, 6, 7, 8, 9):
            if rng.random() < missing:
                row[column] = "?"
        yield row


def write_heart(folder, sizes=(30, 26, 9, 20), missing=0.0, seed=0):
    """The four files, with so many patients each."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    for file, size in zip(hospitals.HOSPITALS, sizes, strict=True):
        (folder / file).write_text(table(None, patients(rng, size, missing)))


STROKE_COLUMNS = (
    "HOSPNUM", "RDELAY", "RCONSC", "SEX", "AGE", "RSLEEP", "RATRIAL", "RCT", "RVISINF", "RHEP24", "RASP3",
    "RSBP", *(f"RDEF{number}" for number in range(1, 9)), "STYPE", "RDATE", "RXASP", "RXHEP", "COUNTRY",
    "OCCODE",
)  # fmt: skip


def stroke_patient(rng, hospital, country):
    """A row of ist, complete, whose outcome follows from age and consciousness."""
    age, conscious = int(rng.integers(45, 95)), str(rng.choice(list("FDU"), p=[0.7, 0.2, 0.1]))
    bad = rng.random() < 1 / (1 + np.exp(-(age - 70) / 8 - 1.5 * (conscious != "F")))

    def yes():
        return str(rng.choice(list("YN")))

    return {
        "HOSPNUM": hospital, "RDELAY": rng.integers(1, 49), "RCONSC": conscious,
        "SEX": rng.choice(["M", "F"]), "AGE": age, "RSLEEP": yes(), "RATRIAL": yes(), "RCT": yes(),
        "RVISINF": yes(), "RHEP24": yes(), "RASP3": yes(), "RSBP": rng.integers(100, 220),
        **{f"RDEF{number}": rng.choice(list("YNC")) for number in range(1, 9)},
        "STYPE": rng.choice(["LACS", "PACS", "TACS", "POCS", "OTH"]), "RDATE": "sty-91", "RXASP": yes(),
        "RXHEP": rng.choice(list("NLMH")), "COUNTRY": country, "OCCODE": rng.integers(1, 3) + 2 * (not bad),
    }  # fmt: skip


def stroke_table(rows):
    """The text of a file of ist."""
    return table(STROKE_COLUMNS, [[row[column] for column in STROKE_COLUMNS] for row in rows])


def write_ist(folder, sizes=(40, 22, 13, 7, 3, 1), seed=0):
    """The table, of hospitals with so many patients; the first three are British, the others French."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        stroke_patient(rng, 10 * place + 3, "UK" if place < 3 else "FRAN")
        for place, size in enumerate(sizes)
        for _ in range(size)
    ]
    (folder / hospitals.STROKE_FILE).write_text(stroke_table(rows))


def write_schools(folder, sizes=(14, 30, 9, 5, 1), seed=0):
    """Both tables, of schools with so many pupils."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    maths, chemistry = [], []
    for place, size in enumerate(sizes):
        mean = rng.normal()
        for _ in range(size):
            status, gcse = rng.normal(mean, 0.5), rng.uniform(4, 8)
            score = 13 + 3 * status + rng.normal()
            maths.append([
                len(maths) + 1, 1200 + place, rng.choice(["Yes", "No"]), rng.choice(["Male", "Female"]),
                f"{status:.3f}", f"{score:.3f}", f"{mean:.3f}",
            ])  # fmt: skip
            grade = int(np.clip(2 * round(gcse + rng.normal()) - 6, 0, 10))
            chemistry.append([
                len(chemistry) + 1, 1 + place // 2, 1 + place, len(chemistry) + 1, grade,
                rng.choice(["M", "F"]), rng.integers(-6, 6), f"{gcse:.3f}", f"{gcse - 6.3:.3f}",
            ])  # fmt: skip
    header = ("rownames", "School", "Minority", "Sex", "SES", "MathAch", "MEANSES")
    (folder / schools.FILES["mathachieve"]).write_text(table(header, maths))
    header = ("rownames", "lea", "school", "student", "score", "gender", "age", "gcsescore", "gcsecnt")
    (folder / schools.FILES["chem97"]).write_text(table(header, chemistry))


def write_all(folder):
    """All three, in subfolders as `$BONAFED_DATA` has them."""
    write_heart(folder / "heart")
    write_ist(folder / "ist")
    write_schools(folder / "schools")
    return folder
