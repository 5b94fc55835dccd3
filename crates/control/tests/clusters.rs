//! Virtual clusters that are changed while jobs run.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use dovetail_control::book::JobState;
use dovetail_control::{
    Book, Fact, JobNo, JobRequest, Operate, PolicyText, Promise, VirtualCluster, VirtualClusters,
};
use dovetail_engine::Clock;
use dovetail_model::{NodeId, NodeSpec, Time};

struct World {
    book: Book,
    now: Time,
}

impl World {
    fn new(nodes: u32, gpus: u32) -> Self {
        let book = Book::new(PolicyText::default(), Clock::Events).unwrap();
        let mut world = Self {
            book,
            now: Time::from_secs(1_000),
        };
        for i in 0..nodes {
            world.tell(Fact::NodeJoined {
                node: NodeId(i),
                spec: Box::new(NodeSpec::plain(format!("node-{i}"), gpus)),
                gpu_type: "virtual".to_owned(),
                rack: "rack".to_owned(),
                address: String::new(),
                identity: u64::from(i),
            });
        }
        world
    }

    fn tell(&mut self, fact: Fact) {
        self.now += Time::from_secs(1);
        self.book.apply(self.now, &fact);
        self.book.check().unwrap();
        let saved = self.book.save().unwrap();
        assert_eq!(
            Book::load(&saved).unwrap().save().unwrap(),
            saved,
            "what is kept is all there is"
        );
    }

    fn submit(&mut self, user: &str, tenant: &str, gpus: u32, priority: i32) -> JobNo {
        let job = self.book.next_job();
        let request = JobRequest {
            command: vec!["true".to_owned()],
            tenant: tenant.to_owned(),
            gpus,
            priority,
            ..JobRequest::default()
        };
        self.tell(Fact::Submitted {
            job,
            user: user.to_owned(),
            request: Box::new(request),
            key: None,
        });
        job
    }

    fn set(&mut self, clusters: &VirtualClusters) {
        let what = Operate::VirtualClusters(Box::new(clusters.clone()));
        self.tell(Fact::Operated {
            what,
            by: "root".to_owned(),
        });
        assert_eq!(self.book.clusters(), clusters);
    }

    fn is_up(&self, job: JobNo) -> bool {
        self.book.job(job).unwrap().state.is_up()
    }

    fn node_of(&self, job: JobNo) -> u32 {
        let attempt = self.book.job(job).unwrap().attempt().unwrap();
        attempt.allocation.shares[0].node.0
    }

    fn why(&self, job: JobNo) -> String {
        let why = self.book.explain(job).unwrap();
        format!("{}; {}", why.sentence, why.reasons.join("; "))
    }
}

fn quota(shares: &[(&str, u32)]) -> VirtualClusters {
    let cluster = |gpus: u32| VirtualCluster {
        guaranteed_gpus: gpus,
        ..VirtualCluster::default()
    };
    VirtualClusters {
        promise: Promise::Quota,
        named: shares
            .iter()
            .map(|(name, gpus)| ((*name).to_owned(), cluster(*gpus)))
            .collect(),
        cells: None,
    }
}

#[test]
fn a_quota_is_raised_while_a_job_waits_for_it() {
    let mut world = World::new(2, 4);
    world.set(&quota(&[("vision", 4), ("speech", 4)]));
    let (first, second) = (
        world.submit("ann", "vision", 4, 0),
        world.submit("ann", "vision", 2, 0),
    );
    assert!(
        world.is_up(first) && !world.is_up(second),
        "{}",
        world.why(second)
    );
    assert!(
        world
            .why(second)
            .contains("tenant vision is guaranteed 4 and holds 4"),
        "{}",
        world.why(second)
    );
    let raised = quota(&[("vision", 6), ("speech", 2)]);
    let change = world.book.would_change_clusters(&raised).unwrap();
    assert_eq!((change.starts, change.stops), (vec![second], vec![]));
    assert!(!world.is_up(second), "nothing is changed yet");
    world.set(&raised);
    assert!(world.is_up(second));
}

#[test]
fn borrowers_give_way_and_too_large_promises_are_remarked() {
    let mut world = World::new(2, 4);
    world.set(&quota(&[("vision", 4), ("speech", 4)]));
    let borrower = world.submit("ann", "vision", 8, -1);
    assert!(world.is_up(borrower));
    let own = world.submit("bob", "speech", 1, 0);
    assert!(
        matches!(world.book.job(borrower).unwrap().state, JobState::Stopping(_)),
        "{}",
        world.why(own)
    );
    let lowered = quota(&[("vision", 8), ("speech", 0)]);
    let change = world.book.would_change_clusters(&lowered).unwrap();
    assert_eq!((&change.stops, &change.lent), (&vec![], &vec![own]), "it runs on");
    let change = world
        .book
        .would_change_clusters(&quota(&[("vision", 40)]))
        .unwrap();
    assert!(
        change.remarks[0].contains("40 GPUs are promised, but only 8 are there"),
        "{change:?}"
    );
}

#[test]
fn a_user_waits_at_the_cap_and_goes_on_below_it() {
    let mut world = World::new(2, 4);
    let mut clusters = quota(&[("vision", 8)]);
    clusters.named.get_mut("vision").unwrap().user_cap_gpus = Some(3);
    world.set(&clusters);
    let jobs: Vec<JobNo> = (0..3).map(|_| world.submit("ann", "vision", 2, 0)).collect();
    let other = world.submit("bob", "vision", 2, 0);
    assert!(world.is_up(jobs[0]) && world.is_up(other) && !world.is_up(jobs[1]));
    assert!(
        world.why(jobs[1]).contains("where one user may have 3"),
        "{}",
        world.why(jobs[1])
    );
    clusters.named.get_mut("vision").unwrap().user_cap_gpus = Some(4);
    world.set(&clusters);
    assert!(world.is_up(jobs[1]) && !world.is_up(jobs[2]));
    world.tell(Fact::Cancelled {
        job: jobs[0],
        by: "ann".to_owned(),
    });
    let end = Box::new(dovetail_control::TaskEnd {
        was_stopped: true,
        ..Default::default()
    });
    let (launch, node) = (1, NodeId(world.node_of(jobs[0])));
    world.tell(Fact::TaskEnded {
        job: jobs[0],
        launch,
        node,
        end,
    });
    assert!(world.is_up(jobs[2]), "{}", world.why(jobs[2]));
}

#[test]
fn cells_are_owned_lent_and_moved_to_another_owner() {
    let cells = |a: u32, b: u32| {
        let machine = |name: &str| dovetail_cells::PhysicalCell {
            address: Some(name.to_owned()),
            ..Default::default()
        };
        let pool = dovetail_cells::PhysicalCell {
            cell_type: Some("POOL".to_owned()),
            children: vec![machine("node-0"), machine("node-1")],
            ..Default::default()
        };
        let kind = |child: &str, children: u32, is_node: bool| dovetail_cells::CellType {
            child: child.to_owned(),
            children,
            is_node,
        };
        let owner = |number: u32| dovetail_cells::VirtualCluster {
            cells: vec![dovetail_cells::VirtualCells {
                path: "POOL.NODE".to_owned(),
                number,
            }],
            ..Default::default()
        };
        let owners = [("a", a), ("b", b)].into_iter().filter(|(_, n)| *n > 0);
        let config = dovetail_cells::Config {
            cell_types: [
                ("NODE", kind("virtual", 4, true)),
                ("POOL", kind("NODE", 2, false)),
            ]
            .map(|(name, kind)| (name.to_owned(), kind))
            .into(),
            physical_cells: vec![pool],
            virtual_clusters: owners.map(|(name, n)| (name.to_owned(), owner(n))).collect(),
            ..Default::default()
        };
        VirtualClusters {
            promise: Promise::Cells,
            named: BTreeMap::new(),
            cells: Some(config),
        }
    };
    let mut world = World::new(1, 4);
    world.set(&cells(1, 1));
    let first = world.submit("ann", "a", 4, 0);
    let second = world.submit("bob", "b", 4, 0);
    // The other machine has not come yet, and a's own cell is not b's.
    assert!(
        world.is_up(first) && !world.is_up(second),
        "{}",
        world.why(second)
    );
    world.tell(Fact::NodeJoined {
        node: NodeId(1),
        spec: Box::new(NodeSpec::plain("node-1".to_owned(), 4)),
        gpu_type: "virtual".to_owned(),
        rack: "rack".to_owned(),
        address: String::new(),
        identity: 1,
    });
    assert!(world.is_up(second), "{}", world.why(second));
    assert_ne!(world.node_of(first), world.node_of(second));
    let refused = world.book.would_change_clusters(&cells(2, 0)).unwrap_err();
    assert!(
        refused.contains("job 2 is not over and belongs to b"),
        "{refused}"
    );
    let mut wrong = cells(1, 1);
    wrong.named.insert("c".to_owned(), VirtualCluster::default());
    assert!(
        world
            .book
            .would_change_clusters(&wrong)
            .unwrap_err()
            .contains("c: owns no cells")
    );
    let too_many = world.book.would_change_clusters(&cells(2, 1)).unwrap_err();
    assert!(too_many.contains("cells:"), "{too_many}");
}
