"""An encoding is advised where the bytes have words by it.

A file of UTF-8 is not read by another one.
"""

import pytest

from bertctl.config.recipe_sections import DataSection
from bertctl.data.text_rows import TEXT_READER
from bertctl.encodings import likely_encoding
from bertctl.errors import DataError
from tests.heard import Heard

SENTENCES: dict[str, tuple[str, list[str]]] = {
    "Japanese": ("これはとても良い映画でした。俳優も素晴らしかったです。", ["shift_jis", "euc_jp"]),
    "Chinese": ("这部电影非常好看，演员也很出色。", ["gbk"]),
    "traditional Chinese": ("這部電影非常好看，演員也很出色。", ["big5"]),
    "Korean": ("이 영화는 정말 좋았습니다. 배우들도 훌륭했습니다.", ["euc_kr"]),
    "Russian": (
        "Этот фильм был действительно отличным, актёры тоже.",
        ["cp1251", "koi8_r", "iso8859_5", "cp866"],
    ),
    "Ukrainian": ("Цей фільм був справді чудовим, актори теж.", ["cp1251", "koi8_u"]),
    "Greek": ("Αυτή η ταινία ήταν πραγματικά υπέροχη.", ["iso8859_7"]),
    "Hebrew": ("הסרט הזה היה באמת מצוין", ["cp1255"]),
    "Arabic": ("كان هذا الفيلم رائعا حقا", ["cp1256"]),
    "Thai": ("หนังเรื่องนี้ดีมากจริงๆ นักแสดงก็ยอดเยี่ยม", ["tis_620"]),
    "Polish": (
        "Ten film był naprawdę świetny, aktorzy też byli znakomici.",
        ["iso8859_2", "cp1250"],
    ),
    "Czech": (
        "Tenhle film byl opravdu skvělý a herci také výborní, děj žádný.",
        ["iso8859_2", "cp1250"],
    ),
    "Hungarian": (
        "Ez a film nagyon jó volt, gyönyörű képekkel és kitűnő színészekkel.",
        ["iso8859_2"],
    ),
    "Turkish": (
        "Bu film gerçekten çok güzeldi, hiç sıkıcı değil, oyuncular da iyiydi.",
        ["cp1254"],
    ),
    "French": (
        "Ce film était vraiment génial, les acteurs étaient très bons, déjà.",
        ["latin-1", "mac_roman", "cp850"],
    ),
    "German": (
        "Ein schöner Film mit großartigen Schauspielern für alle.",
        ["latin-1", "mac_roman", "cp850"],
    ),
    "Spanish": (
        "La película estuvo genial, los niños disfrutaron muchísimo.",
        ["latin-1", "mac_roman"],
    ),
}
CASES = [
    (language, encoding) for language, (_, encodings) in SENTENCES.items() for encoding in encodings
]


@pytest.mark.parametrize(("language", "encoding"), CASES)
@pytest.mark.parametrize("count", [1, 4])
def test_the_advised_encoding_gives_the_words_back(tmp_path, language, encoding, count):
    text = SENTENCES[language][0]
    path = tmp_path / "a.csv"
    path.write_bytes(("text,label\n" + f'"{text}",positive\n' * count).encode(encoding))
    with pytest.raises(DataError, match="is not utf-8") as caught:
        TEXT_READER.read(path, DataSection(), split="train", label_needed=True)
    advised = caught.value.remedy.rpartition("add `data.encoding=")[2].rstrip("`")
    assert f"{count} line" in caught.value.remedy
    rows = TEXT_READER.read(
        path, DataSection(encoding=advised), split="train", label_needed=True
    ).rows
    assert list(rows.columns["text"]) == [text] * count


@pytest.mark.parametrize("data", [b"\xff\xfe\xfd\xfc", bytes(range(128, 256)), b"a \x81 b \x8d c"])
def test_bytes_without_words_advise_no_encoding(tmp_path, data):
    assert likely_encoding(data) is None
    path = tmp_path / "a.csv"
    path.write_bytes(b"text,label\nx " + data + b",1\n")
    with pytest.raises(DataError) as caught:
        TEXT_READER.read(path, DataSection(), split="train", label_needed=True)
    assert "Which encoding it is can't be seen" in caught.value.remedy


GOOD = "".join(f"un café déjà vu {i},1\n" for i in range(6))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (["un été"], "Line 8 alone is not UTF-8 (by latin-1 it reads 'un été,0'); 6 other lines"),
        (["un été", "la forêt"], "2 lines are not UTF-8 (8, 9)"),
    ],
)
def test_lines_that_are_not_utf8_among_lines_that_are_get_no_encoding_advised(
    tmp_path, bad, message
):
    path = tmp_path / "a.csv"
    path.write_bytes(
        ("text,label\n" + GOOD).encode() + "".join(f"{text},0\n" for text in bad).encode("latin-1")
    )
    with pytest.raises(DataError) as caught:
        TEXT_READER.read(path, DataSection(), split="train", label_needed=True)
    assert caught.value.line == 8
    assert message in caught.value.remedy
    assert "data.encoding" not in caught.value.remedy


@pytest.mark.parametrize(
    "encoding", ["latin-1", "cp1252", "cp437", "shift_jis", "gbk", "koi8-r", "utf-16"]
)
@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.txt"])
def test_a_file_of_utf8_is_not_read_by_another_encoding(tmp_path, name, encoding):
    contents = {
        ".csv": "text,label\n" + GOOD,
        ".jsonl": '{"text": "un café déjà vu"}\n' * 6,
        ".txt": "déjà vu\n" * 6,
    }
    path = tmp_path / name
    path.write_text(contents[path.suffix], encoding="utf-8")
    with pytest.raises(DataError, match=r"UTF-8.*read as|is not shift_jis") as caught:
        list(TEXT_READER.stream(path, DataSection(encoding=encoding)))
    assert "`data.encoding=utf-8`" in caught.value.remedy


def test_a_single_line_of_utf8_in_a_file_of_another_encoding_is_told(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(
        "".join(f"un été {i}\n" for i in range(5)).encode("latin-1") + "un café\n".encode()
    )
    listener = Heard()
    [rows] = TEXT_READER.stream(path, DataSection(encoding="latin-1"), listener=listener)
    assert len(rows) == 6
    assert (
        "a.txt:6: this line is UTF-8, and is read as latin-1: 'un cafÃ©' for 'un café'"
        in listener.warned[0]
    )
