//! Compressed files: gzip and zstd, by their first bytes when read and by their name when written.

use std::io::{self, Read, Write};

/// First bytes of a gzip file.
pub(crate) const GZIP: [u8; 2] = [0x1f, 0x8b];
/// First bytes of a zstd file.
pub(crate) const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Level of zstd for files that we write.
const ZSTD_LEVEL: i32 = 3;

/// Decompresses the content of a file if its first bytes say so.
///
/// # Errors
/// If the content is damaged or truncated.
pub fn decompress(bytes: Vec<u8>) -> io::Result<Vec<u8>> {
    if bytes.starts_with(&GZIP) {
        let mut content = Vec::new();
        flate2::read::MultiGzDecoder::new(bytes.as_slice()).read_to_end(&mut content)?;
        return Ok(content);
    }
    match bytes.starts_with(&ZSTD) {
        true => zstd::decode_all(bytes.as_slice()),
        false => Ok(bytes),
    }
}

/// Compresses the content of a file if its name ends in `.gz` or `.zst`.
///
/// # Errors
/// If the compressor fails.
pub fn compress(bytes: Vec<u8>, name: &str) -> io::Result<Vec<u8>> {
    if name.ends_with(".gz") {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(&bytes)?;
        return encoder.finish();
    }
    match name.ends_with(".zst") {
        true => zstd::encode_all(bytes.as_slice(), ZSTD_LEVEL),
        false => Ok(bytes),
    }
}

/// Returns a file name without the ending of a compressed file.
pub fn uncompressed_name(name: &str) -> &str {
    name.trim_end_matches(".gz").trim_end_matches(".zst")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_compressed_by_name_is_decompressed_by_content() {
        for name in ["jobs.csv", "jobs.csv.gz", "jobs.csv.zst"] {
            let packed = compress(b"job_id,gpus\n".to_vec(), name).unwrap();
            assert_eq!(decompress(packed).unwrap(), b"job_id,gpus\n", "{name}");
            assert_eq!(uncompressed_name(name), "jobs.csv");
        }
        assert!(decompress([&GZIP[..], b"broken"].concat()).is_err());
    }
}
