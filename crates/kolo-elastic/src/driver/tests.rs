use std::net::Ipv4Addr;
use std::sync::mpsc;

use super::*;
use crate::launcher_view::NodeLimits;
use crate::protocol::MembershipPolicy;

const LONG: Duration = Duration::from_secs(60);

#[test]
fn a_launcher_that_does_not_follow_any_more_keeps_no_connection_to_a_leader() {
    let access = Access::default();
    let address = (Ipv4Addr::LOCALHOST, 0).into();
    let leader = Server::start(address, 1, &access).unwrap();
    let (launcher, _events) = mpsc::channel();
    let context = Context {
        launcher_id: 1,
        place: "here".into(),
        policy: MembershipPolicy {
            min_members: 1,
            start_timeout: LONG,
            rejoin_timeout: LONG,
            too_few_timeout: LONG,
        },
        limits: NodeLimits { min: 1, max: 1 },
        deferred_workers: 0,
        start_timeout: LONG,
        begins_by: Instant::now() + LONG,
        ranks_given: false,
    };
    let mut driver = Driver::new(DriverParts {
        context,
        access: access.clone(),
        arbiter: Arbiter::sole(),
        ip: Ipv4Addr::LOCALHOST.into(),
        discovery: None,
        members: Arc::new(Server::start(address, 1, &access).unwrap()),
        launcher,
    });
    assert!(matches!(driver.state.role, Role::Leading(_)));
    let late = LeaderConnection::open(leader.address().unwrap(), 1, &access, LONG).unwrap();
    assert!(driver.answered(Answer::Connected(Ok(late))).is_none());
    assert!(driver.leader.is_none());
}
