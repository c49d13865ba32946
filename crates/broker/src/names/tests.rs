use super::characters::REFUSED;
use super::*;

#[test]
fn the_table_is_that_of_the_vectors_and_ascends() {
    let lines = include_str!("../../../../specs/vectors/names.txt").lines();
    let rows: Vec<String> = lines
        .filter(|line| !line.starts_with('#'))
        .map(str::to_uppercase)
        .collect();
    let own = REFUSED.iter().map(|(first, last, flaw)| {
        let (first, last) = (*first as u32, *last as u32);
        format!("{first:04X} {last:04X} {flaw:?}").to_uppercase()
    });
    assert_eq!(own.collect::<Vec<_>>(), rows);
    assert!(REFUSED.is_sorted_by(|one, next| one.1 < next.0));
    assert!(REFUSED.iter().all(|(first, last, _)| first <= last));
}

#[test]
fn names_of_every_script_are_names() {
    for name in [
        "",
        "orders",
        "a b",
        "a,b",
        "größe",
        "заказы",
        "訂單",
        "طلبات",
        "क्षेत्र",
        "🚀",
        "a\"b",
        "\u{212}",
    ] {
        assert_eq!(check_name(name), Ok(()), "{name:?}");
    }
}

#[test]
fn what_cannot_be_seen_is_refused_and_shown() {
    for (name, text) in [
        (
            "a\u{200B}b",
            r#""a\u{200b}b" has U+200B, which cannot be seen: leave it out"#,
        ),
        (
            "\0",
            r#""\u{0}" has U+0000, a control character: leave it out"#,
        ),
        (
            "a\u{A0}b",
            r#""a\u{a0}b" has U+00A0, which looks like a space: leave it out"#,
        ),
        (
            "\u{10FFFD}",
            r#""\u{10fffd}" has U+10FFFD, which means nothing to others: leave it out"#,
        ),
    ] {
        assert_eq!(check_name(name).unwrap_err().to_string(), text);
    }
    for (first, last, why) in REFUSED {
        assert_eq!((flaw(*first), flaw(*last)), (Some(*why), Some(*why)));
    }
}

#[test]
fn of_two_spellings_that_look_the_same_one_is_a_name() {
    assert_eq!(check_name("\u{E1}"), Ok(()));
    assert_eq!(
        check_name("a\u{301}").unwrap_err().to_string(),
        "\"a\u{301}\" is not in Unicode normal form C: where it has U+0061, give U+00E1, as in \"\u{E1}\""
    );
    assert!(
        check_name("\u{212B}").is_err(),
        "the sign of the Ångström is the letter"
    );
    assert!(
        check_name("a\u{301}\u{327}").is_err(),
        "marks have one order"
    );
}

#[test]
fn the_error_for_a_long_name_has_its_length_and_its_beginning() {
    let most = "\u{301}".repeat(MAX_BYTES / 2);
    assert_eq!(check_name(&most), Ok(()));
    assert_eq!(check_id(&most), Ok(()));
    let text = format!(
        "\"{}…\" is 1048576 bytes long, more than 1024: give a shorter one",
        "\u{301}".repeat(SHOWN)
    );
    for check in [check_name, check_id] {
        let marks = check(&"\u{301}".repeat(512 << 10)).unwrap_err();
        assert_eq!(marks.to_string(), text);
        let shown = check(&"\0".repeat(MAX_BYTES)).unwrap_err().to_string();
        assert!(shown.len() < 1000, "{}", shown.len());
    }
}

#[test]
fn joiners_and_emoji_are_names_where_they_are_of_use() {
    let lines = include_str!("../../../../specs/vectors/names-in-context.txt").lines();
    let mut seen = 0;
    for line in lines.filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split(" ; ").collect();
        let name: String = fields[0].split(' ').map(character).collect();
        let refused = (fields[1] != "-").then(|| character(fields[1]));
        let found = match check_name(&name) {
            Err(NameError::Character { character, .. }) => Some(character),
            other => {
                assert_eq!(other, Ok(()), "{line}");
                None
            }
        };
        assert_eq!(found, refused, "{line}");
        assert_eq!(check_id(&name), Ok(()), "{line}");
        seen += 1;
    }
    assert!(seen > 30, "{seen}");
}

fn character(code: &str) -> char {
    char::from_u32(u32::from_str_radix(code, 16).unwrap()).unwrap()
}

#[test]
fn ids_are_refused_for_what_nobody_meant_only() {
    for id in [
        "orders\u{A0}x",
        "a\u{301}",
        "\u{200D}",
        "\u{E000}",
        "\u{3000}",
    ] {
        assert_eq!(check_id(id), Ok(()), "{id:?}");
    }
    for (id, text) in [
        (
            "a\nb",
            r#""a\u{a}b" has U+000A, a control character: leave it out"#,
        ),
        (
            "a\u{2028}",
            r#""a\u{2028}" has U+2028, which cannot be seen: leave it out"#,
        ),
        (
            "\u{FEFF}a",
            r#""\u{feff}a" has U+FEFF, which cannot be seen: leave it out"#,
        ),
        (
            "\u{FFFE}",
            r#""\u{fffe}" has U+FFFE, which is not a character: leave it out"#,
        ),
    ] {
        assert_eq!(check_id(id).unwrap_err().to_string(), text);
    }
    for (first, last, flaw) in REFUSED {
        let refused = matches!(flaw, Flaw::Control | Flaw::Invisible | Flaw::Nothing);
        for end in [first, last] {
            assert_eq!(check_id(&end.to_string()).is_err(), refused, "{end:?}");
        }
    }
}
