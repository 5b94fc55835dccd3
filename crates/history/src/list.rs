//! Lists of jobs: filtered, sorted and paged.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, Row, params_from_iter};

use crate::order::{Selection, Sort, SortField, SortKey};
use crate::statement::{Conditions, one_of};

/// Whose rights limit a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Viewer {
    /// The user, who sees all own jobs.
    pub user: String,
    /// Virtual clusters of which the user sees all jobs that are not private.
    pub tenants: Vec<String>,
}

/// Jobs that the caller has in memory. They are not counted or listed here, whether they are stored or not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownJobs {
    /// All jobs from this number on.
    pub from: u64,
    /// Jobs with smaller numbers, in order.
    pub below: Vec<u64>,
}

impl KnownJobs {
    /// Returns whether the caller has the job.
    pub fn has(&self, id: u64) -> bool {
        id >= self.from || self.below.binary_search(&id).is_ok()
    }

    /// Returns the numbers below as JSON, for `json_each`.
    pub(crate) fn below_json(&self) -> Value {
        Value::Text(serde_json::to_string(&self.below).unwrap_or_default())
    }
}

/// Which jobs to list, and in which order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobQuery {
    /// States or reasons, any of which fits.
    pub states: Option<Vec<String>>,
    /// User who submitted it.
    pub user: Option<String>,
    /// Virtual cluster.
    pub tenant: Option<String>,
    /// Name.
    pub name: Option<String>,
    /// Label, with its value unless any fits.
    pub label: Option<(String, Option<String>)>,
    /// Minimum number of GPUs.
    pub gpus_min: Option<u32>,
    /// Maximum number of GPUs.
    pub gpus_max: Option<u32>,
    /// Submitted at this time or later.
    pub from: Option<i64>,
    /// Submitted before this time.
    pub to: Option<i64>,
    /// Part of the name, the user or the virtual cluster, or the number.
    pub text: Option<String>,
    /// Whose rights count; none for a user who sees everything.
    pub viewer: Option<Viewer>,
    /// The order.
    pub sort: Sort,
    /// Last job of the previous page.
    pub after: Option<(SortKey, u64)>,
    /// Maximum number of jobs.
    pub limit: usize,
}

impl JobQuery {
    /// Returns a query for the newest jobs, without filters.
    pub fn newest(limit: usize) -> Self {
        Self {
            states: None,
            user: None,
            tenant: None,
            name: None,
            label: None,
            gpus_min: None,
            gpus_max: None,
            from: None,
            to: None,
            text: None,
            viewer: None,
            sort: Sort {
                field: SortField::Submitted,
                descending: true,
            },
            after: None,
            limit,
        }
    }
}

/// The jobs of a page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// Number of jobs on all pages.
    pub total: u64,
    /// Jobs of this page, with their sort keys.
    pub jobs: Vec<(SortKey, u64)>,
}

/// The term whose index is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Driver {
    Scan,
    Outcome,
    User,
    Tenant,
    Name,
    Submitted,
    Label,
}

/// Largest number of rows that are looked up through an index; for more of them a scan is faster.
const MAX_LOOKUPS: u64 = 50_000;

/// A query with the numbers of its words.
struct Resolved<'a> {
    query: &'a JobQuery,
    words: BTreeMap<i64, String>,
    outcomes: Option<Vec<i64>>,
    user: Option<i64>,
    tenant: Option<i64>,
    /// The user and the virtual clusters of the viewer.
    viewer: Option<(i64, Vec<i64>)>,
    /// Users and virtual clusters whose names contain the text.
    similar: Vec<i64>,
}

/// Returns the jobs of a page, and how many there are on all pages.
pub(crate) fn list(connection: &Connection, query: &JobQuery, known: &KnownJobs) -> rusqlite::Result<Found> {
    let Some(resolved) = Resolved::new(connection, query)? else {
        return Ok(Found::default());
    };
    match resolved.is_counted() && query.sort.field == SortField::Submitted {
        true => resolved.counted_page(connection, known),
        false => resolved.scanned_page(connection, known),
    }
}

impl<'a> Resolved<'a> {
    /// Looks up the words of a query. Returns none if no job can match.
    fn new(connection: &Connection, query: &'a JobQuery) -> rusqlite::Result<Option<Self>> {
        let mut statement = connection.prepare_cached("SELECT id, text FROM words")?;
        let words = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let words: BTreeMap<i64, String> = words.collect::<rusqlite::Result<_>>()?;
        let numbers: BTreeMap<&str, i64> = words.iter().map(|(id, text)| (text.as_str(), *id)).collect();
        let number = |text: &String| numbers.get(text.as_str()).copied();
        let is_outcome = |text: &str, wanted: &String| {
            text == wanted
                || text
                    .split_once(' ')
                    .is_some_and(|(s, r)| s == wanted || r == wanted)
        };
        let outcomes = query.states.as_ref().map(|states| {
            let fits = |(_, text): &(&i64, &String)| states.iter().any(|wanted| is_outcome(text, wanted));
            words.iter().filter(fits).map(|(id, _)| *id).collect::<Vec<i64>>()
        });
        let (user, tenant) = (query.user.as_ref().map(number), query.tenant.as_ref().map(number));
        if user == Some(None) || tenant == Some(None) || outcomes.as_ref().is_some_and(Vec::is_empty) {
            return Ok(None);
        }
        let viewer = query.viewer.as_ref().map(|viewer| {
            let tenants = viewer.tenants.iter().filter_map(number).collect();
            (number(&viewer.user).unwrap_or(0), tenants)
        });
        let similar = query.text.as_ref().map_or(Vec::new(), |text| {
            let contains = words.iter().filter(|(_, word)| word.contains(text.as_str()));
            contains.map(|(id, _)| *id).collect()
        });
        Ok(Some(Self {
            query,
            outcomes,
            user: user.flatten(),
            tenant: tenant.flatten(),
            viewer,
            similar,
            words,
        }))
    }

    /// Returns whether the table of outcomes has the number of jobs.
    fn is_counted(&self) -> bool {
        self.query.label.is_none() && !self.has_uncounted_terms()
    }

    /// Returns whether there are terms, beside a label, that the table of outcomes does not have.
    fn has_uncounted_terms(&self) -> bool {
        let query = self.query;
        let bounds = [
            query.from,
            query.to,
            query.gpus_min.map(i64::from),
            query.gpus_max.map(i64::from),
        ];
        query.name.is_some() || query.text.is_some() || bounds.iter().any(Option::is_some)
    }

    /// Adds the terms whose columns the tables of outcomes and of jobs have.
    fn common_conditions(&self, driver: Driver) -> Conditions {
        let mut conditions = Conditions::default();
        let column = |of: Driver, name: &str| match of == driver {
            true => name.to_owned(),
            false => format!("+{name}"),
        };
        if let Some(outcomes) = &self.outcomes {
            conditions.and_one_of(&column(Driver::Outcome, "outcome"), outcomes);
        }
        if let Some(user) = self.user {
            conditions.and_one_of(&column(Driver::User, "user"), &[user]);
        }
        if let Some(tenant) = self.tenant {
            conditions.and_one_of(&column(Driver::Tenant, "tenant"), &[tenant]);
        }
        self.add_viewer(&mut conditions);
        conditions
    }

    fn add_viewer(&self, conditions: &mut Conditions) {
        if let Some((user, tenants)) = &self.viewer {
            let term = format!(
                "(+user = ? OR (private = 0 AND {}))",
                one_of("+tenant", tenants.len())
            );
            let values = std::iter::once(user).chain(tenants);
            conditions.and(&term, values.copied().map(Value::Integer));
        }
    }

    /// Returns all terms for the table of jobs.
    fn conditions(&self, driver: Driver) -> Conditions {
        let query = self.query;
        let mut conditions = self.common_conditions(driver);
        let column = |of: Driver, name: &str| match of == driver {
            true => name.to_owned(),
            false => format!("+{name}"),
        };
        let submitted = column(Driver::Submitted, "submitted");
        let bounds = [
            (query.gpus_min.map(i64::from), "+gpus >= ?".to_owned()),
            (query.gpus_max.map(i64::from), "+gpus <= ?".to_owned()),
            (query.from, format!("{submitted} >= ?")),
            (query.to, format!("{submitted} < ?")),
        ];
        for (bound, term) in bounds {
            if let Some(bound) = bound {
                conditions.and(&term, [Value::Integer(bound)]);
            }
        }
        if let Some(name) = &query.name {
            let term = format!("{} = ?", column(Driver::Name, "name"));
            conditions.and(&term, [Value::Text(name.clone())]);
        }
        if let Some(label) = &query.label {
            let labels = label_conditions(label);
            let jobs = format!("SELECT job FROM labels{}", labels.clause());
            conditions.and(
                &format!("{} IN ({jobs})", column(Driver::Label, "id")),
                labels.values,
            );
        }
        if let Some(text) = &query.text {
            // There may be more users than a statement can have placeholders.
            let similar = "IN (SELECT value FROM json_each(?))";
            let term = format!("(instr(name, ?) > 0 OR +user {similar} OR +tenant {similar} OR +id = ?)");
            let id = text
                .parse::<u64>()
                .map_or(-1, |id| i64::try_from(id).unwrap_or(-1));
            let numbers = Value::Text(serde_json::to_string(&self.similar).unwrap_or_default());
            let values = [
                Value::Text(text.clone()),
                numbers.clone(),
                numbers,
                Value::Integer(id),
            ];
            conditions.and(&term, values);
        }
        conditions
    }

    /// Returns a page whose number of jobs follows from the table of outcomes.
    fn counted_page(&self, connection: &Connection, known: &KnownJobs) -> rusqlite::Result<Found> {
        let counted = self.common_conditions(Driver::Scan);
        let sql = format!("SELECT coalesce(sum(jobs), 0) FROM outcomes{}", counted.clause());
        let all = count(connection, &sql, &counted)?;
        let mut stored_from = counted.clone();
        stored_from.and("id >= ?", [integer(known.from)]);
        let mut stored_below = counted;
        stored_below.and("id IN (SELECT value FROM json_each(?))", [known.below_json()]);
        let mut both = 0;
        for stored in [stored_from, stored_below] {
            let sql = format!("SELECT count(*) FROM jobs{}", stored.clause());
            both += count(connection, &sql, &stored)?;
        }
        let Sort { descending, .. } = self.query.sort;
        let mut conditions = self.conditions(self.smallest_counted(connection)?);
        if let Some((_, id)) = &self.query.after {
            conditions.and(if descending { "id < ?" } else { "id > ?" }, [integer(*id)]);
        }
        let direction = if descending { "DESC" } else { "ASC" };
        let sql = format!(
            "SELECT id FROM jobs{} ORDER BY id {direction}",
            conditions.clause()
        );
        let mut jobs = Vec::new();
        for_each(connection, &sql, &conditions, |row| {
            let id = row.get(0)?;
            if !known.has(id) {
                jobs.push((SortKey::Number(0), id));
            }
            Ok(match jobs.len() < self.query.limit {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            })
        })?;
        Ok(Found {
            total: all.saturating_sub(both),
            jobs,
        })
    }

    /// Returns a page from one pass over the jobs that match.
    fn scanned_page(&self, connection: &Connection, known: &KnownJobs) -> rusqlite::Result<Found> {
        let query = self.query;
        let column = match query.sort.field {
            SortField::Submitted => "0",
            SortField::Gpus => "gpus",
            SortField::GpuTime => "gpu_time",
            SortField::Wait => "wait",
            SortField::Name => "name",
            SortField::User => "user",
        };
        let (sql, conditions) = match &query.label {
            // The table of labels has everything that is needed.
            Some(label) if self.has_only_label() && query.sort.field == SortField::Submitted => {
                let mut conditions = label_conditions(label);
                self.add_viewer(&mut conditions);
                (
                    format!("SELECT job, 0 FROM labels{}", conditions.clause()),
                    conditions,
                )
            }
            _ => {
                let conditions = self.conditions(self.smallest(connection)?);
                (
                    format!("SELECT id, {column} FROM jobs{}", conditions.clause()),
                    conditions,
                )
            }
        };
        let mut selection = Selection::new(query.sort, query.after.clone(), query.limit);
        let mut total = 0;
        for_each(connection, &sql, &conditions, |row| {
            let id = row.get(0)?;
            if !known.has(id) {
                total += 1;
                selection.offer(self.sort_key(row.get_ref(1)?), id);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(Found {
            total,
            jobs: selection.finish(),
        })
    }

    /// Returns whether the query has no term but a label.
    fn has_only_label(&self) -> bool {
        !self.has_uncounted_terms() && (&self.outcomes, self.user, self.tenant) == (&None, None, None)
    }

    fn sort_key(&self, value: ValueRef<'_>) -> SortKey {
        match (self.query.sort.field, value) {
            (SortField::User, ValueRef::Integer(user)) => {
                SortKey::Text(self.words.get(&user).cloned().unwrap_or_default())
            }
            (_, ValueRef::Integer(number)) => SortKey::Number(i128::from(number)),
            (_, ValueRef::Text(text)) => SortKey::Text(String::from_utf8_lossy(text).into_owned()),
            (_, ValueRef::Null | ValueRef::Real(_) | ValueRef::Blob(_)) => SortKey::Number(0),
        }
    }

    /// Returns the term with the fewest jobs among those that the table of outcomes counts, if its index is worth using.
    fn smallest_counted(&self, connection: &Connection) -> rusqlite::Result<Driver> {
        self.smallest_of(self.counts(connection)?)
    }

    /// Returns the term with the fewest jobs, if its index is worth using.
    fn smallest(&self, connection: &Connection) -> rusqlite::Result<Driver> {
        let query = self.query;
        let mut counts = self.counts(connection)?;
        if let Some(name) = &query.name {
            let mut conditions = Conditions::default();
            conditions.and("name = ?", [Value::Text(name.clone())]);
            counts.push((bounded_count(connection, "jobs", &conditions)?, Driver::Name));
        }
        if let Some(label) = &query.label {
            let conditions = label_conditions(label);
            counts.push((bounded_count(connection, "labels", &conditions)?, Driver::Label));
        }
        let mut submitted = Conditions::default();
        for (bound, term) in [(query.from, "submitted >= ?"), (query.to, "submitted < ?")] {
            if let Some(bound) = bound {
                submitted.and(term, [Value::Integer(bound)]);
            }
        }
        if !submitted.values.is_empty() {
            counts.push((bounded_count(connection, "jobs", &submitted)?, Driver::Submitted));
        }
        self.smallest_of(counts)
    }

    fn smallest_of(&self, counts: Vec<(u64, Driver)>) -> rusqlite::Result<Driver> {
        let smallest = counts.into_iter().min_by_key(|(count, _)| *count);
        let worth = smallest.filter(|(count, _)| *count <= MAX_LOOKUPS);
        Ok(worth.map_or(Driver::Scan, |(_, driver)| driver))
    }

    /// Returns the number of jobs of each term that the table of outcomes counts.
    fn counts(&self, connection: &Connection) -> rusqlite::Result<Vec<(u64, Driver)>> {
        let terms = [
            (Driver::Outcome, "outcome", self.outcomes.clone()),
            (Driver::User, "user", self.user.map(|user| vec![user])),
            (Driver::Tenant, "tenant", self.tenant.map(|tenant| vec![tenant])),
        ];
        let mut counts = Vec::new();
        for (driver, column, numbers) in terms {
            if let Some(numbers) = numbers {
                let mut conditions = Conditions::default();
                conditions.and_one_of(column, &numbers);
                let sql = format!(
                    "SELECT coalesce(sum(jobs), 0) FROM outcomes{}",
                    conditions.clause()
                );
                counts.push((count(connection, &sql, &conditions)?, driver));
            }
        }
        Ok(counts)
    }
}

fn label_conditions((key, value): &(String, Option<String>)) -> Conditions {
    let mut conditions = Conditions::default();
    conditions.and("key = ?", [Value::Text(key.clone())]);
    if let Some(value) = value {
        conditions.and("value = ?", [Value::Text(value.clone())]);
    }
    conditions
}

/// Returns a job number as a value.
fn integer(id: u64) -> Value {
    Value::Integer(i64::try_from(id).unwrap_or(i64::MAX))
}

fn count(connection: &Connection, sql: &str, conditions: &Conditions) -> rusqlite::Result<u64> {
    let mut statement = connection.prepare_cached(sql)?;
    statement.query_row(params_from_iter(&conditions.values), |row| row.get(0))
}

/// Counts rows, but not many more than are looked up through an index.
fn bounded_count(connection: &Connection, table: &str, conditions: &Conditions) -> rusqlite::Result<u64> {
    let limit = MAX_LOOKUPS + 1;
    let rows = format!("SELECT 1 FROM {table}{} LIMIT {limit}", conditions.clause());
    count(connection, &format!("SELECT count(*) FROM ({rows})"), conditions)
}

fn for_each(
    connection: &Connection,
    sql: &str,
    conditions: &Conditions,
    mut each: impl FnMut(&Row<'_>) -> rusqlite::Result<ControlFlow<()>>,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(params_from_iter(&conditions.values))?;
    while let Some(row) = rows.next()? {
        if each(row)?.is_break() {
            break;
        }
    }
    Ok(())
}
