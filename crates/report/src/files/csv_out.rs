//! Writes CSV.

/// Returns a table with a header as bytes.
pub(crate) fn table<R, C>(header: &[&str], rows: R) -> Vec<u8>
where
    R: IntoIterator<Item = C>,
    C: IntoIterator<Item = String>,
{
    let mut writer = csv::WriterBuilder::new().flexible(true).from_writer(vec![]);
    // Writing to memory cannot fail.
    let _ = writer.write_record(header);
    for row in rows {
        let _ = writer.write_record(row);
    }
    writer.into_inner().unwrap_or_default()
}
