//! What an image in a prompt may be: the agent passes on whatever it is given, and the model's provider then refuses the
//! whole conversation, again and again.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The types that the providers of models take.
const TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// What is wrong with an image's fields, for people.
pub(super) fn faults(
    media_type: Option<&str>,
    data: Option<&str>,
    most_bytes: usize,
) -> Vec<(&'static str, String)> {
    let mut faults = Vec::new();
    let media_type = media_type.filter(|name| TYPES.contains(name));
    if media_type.is_none() {
        faults.push(("mimeType", format!("must be one of {}", TYPES.join(", "))));
    }
    match data.and_then(|data| STANDARD.decode(data).ok()).filter(|image| !image.is_empty()) {
        None => faults.push(("data", "must be base64".to_owned())),
        Some(image) if image.len() > most_bytes => {
            faults.push(("data", format!("must not have more than {most_bytes} bytes (limits.image_bytes)")));
        }
        Some(image) => {
            let found = type_of(&image);
            if let Some(stated) = media_type
                && found != Some(stated)
            {
                let found = found.unwrap_or("none of the types that are taken");
                faults.push(("data", format!("must be {stated}, but is {found} by its first bytes")));
            }
        }
    }
    faults
}

/// The type that an image's first bytes say.
fn type_of(head: &[u8]) -> Option<&'static str> {
    match head {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PNG: &str = "iVBORw0KGgo=";
    const JPEG: &str = "/9j/4AAQ";
    const GIF: &str = "R0lGODlhAQABAA==";
    const WEBP: &str = "UklGRhIAAABXRUJQ";

    fn fields(media_type: &str, data: &str) -> Vec<&'static str> {
        faults(Some(media_type), Some(data), 12).into_iter().map(|(field, _)| field).collect()
    }

    #[test]
    fn an_image_is_of_the_type_that_it_says() {
        for (media_type, data) in
            [("image/png", PNG), ("image/jpeg", JPEG), ("image/gif", GIF), ("image/webp", WEBP)]
        {
            assert!(fields(media_type, data).is_empty(), "{media_type}");
            for other in TYPES.into_iter().filter(|other| *other != media_type) {
                assert_eq!(fields(other, data), ["data"], "{media_type} as {other}");
            }
        }
        // "hi", a WAV file (RIFF too), and a picture of an unknown kind.
        for data in ["aGk=", "UklGRhIAAABXQVZF", "Qk1GAAAA"] {
            assert_eq!(fields("image/png", data), ["data"], "{data}");
            assert_eq!(fields("image/webp", data), ["data"], "{data}");
        }
    }

    #[test]
    fn other_types_are_refused() {
        for media_type in ["image/svg+xml", "image/bmp", "image/jpg", "IMAGE/PNG", "image/", "text/plain", ""]
        {
            assert_eq!(fields(media_type, PNG), ["mimeType"], "{media_type:?}");
        }
        assert_eq!(faults(None, None, 12).len(), 2);
    }

    #[test]
    fn image_data_is_base64() {
        for data in ["", "=", "====", "aGk", "a===", "!!!notbase64", "aGk= ", "aG=k", "iVBORw0KGgo\n"] {
            assert_eq!(fields("image/png", data), ["data"], "{data:?}");
        }
    }

    #[test]
    fn an_image_has_so_many_bytes() {
        let exactly = format!("{WEBP}AAAA");
        assert!(faults(Some("image/webp"), Some(&exactly), 15).is_empty());
        let faults = faults(Some("image/webp"), Some(&exactly), 14);
        assert!(faults[0].1.contains("limits.image_bytes"), "{faults:?}");
    }
}
