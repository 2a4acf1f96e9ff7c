//! The choice of the next leader after a leader is lost. No other code makes it.
//!
//! All launchers have joined one leader, so their copies of the view have the same order. The first launcher
//! after the lost one leads, and all others follow it. A launcher that can still reach the leader does not
//! replace it, but reconnects. The rule needs no votes, so both sides have a leader when the network is cut.
//! That does no harm: the arbiter lets only one of them form a generation. A leader stops when it learns
//! that another one was granted a later generation ([`is_deposed`]).

use crate::launcher_view::{LauncherInfo, LauncherView};

/// Maximum number of connections to a leader that answers and does not welcome the launcher.
const TRIES: u32 = 3;

/// A leader's answer to a probe after the connection to it has broken, or could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaderAnswer {
    /// The leader does not answer, or belongs to another job.
    Nothing,
    /// The leader leads.
    Leads,
    /// The leader follows another launcher, the one before it, which it has not lost.
    Follows,
}

impl LeaderAnswer {
    pub(crate) fn of(view: &LauncherView, answer: Option<LauncherView>) -> LeaderAnswer {
        let leader = |view: &LauncherView| view.leader().map(|leader| leader.id);
        match answer {
            Some(its) if its.job_id == view.job_id && leader(&its) == leader(view) => LeaderAnswer::Leads,
            Some(its) if its.job_id == view.job_id => LeaderAnswer::Follows,
            _ => LeaderAnswer::Nothing,
        }
    }
}

/// A launcher's knowledge when its connection to the leader has broken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeaderLoss {
    pub(crate) answer: LeaderAnswer,
    /// Number of connections to the leader since it last welcomed the launcher.
    pub(crate) tries: u32,
    /// True if a generation has been formed.
    pub(crate) job_runs: bool,
    /// True if users number the nodes: node 0 then begins the job, and may be restarted.
    pub(crate) ranks_given: bool,
    /// True if members of this node wait for an assignment. If none does, the program may not be elastic.
    pub(crate) members_wait: bool,
}

/// A launcher's next step after it has lost its leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Succession {
    /// This launcher leads, with this view.
    Lead(LauncherView),
    /// The launcher connects to this leader, possibly the lost one; this is the view until it sends its own.
    Follow { leader: LauncherInfo, view: LauncherView },
    /// Nothing has been lost: the launcher looks for the job again.
    Rediscover,
    /// Neither the launcher nor its members can go on.
    Detach,
}

/// Decides the next step of launcher `own` after the loss of the leader of `view`, with its reason.
pub(crate) fn succeed(view: &LauncherView, own: u64, loss: LeaderLoss) -> (Succession, String) {
    let Some(lost) = view.leader() else {
        return (Succession::Detach, "it knows of no leader".into());
    };
    match loss.answer {
        LeaderAnswer::Leads if loss.tries < TRIES => {
            let reason = format!("the one that leads, at {}, answers", lost.address);
            return (Succession::Follow { leader: lost.clone(), view: view.clone() }, reason);
        }
        LeaderAnswer::Leads => {
            let reason =
                format!("it was cut off from the one that leads, at {}, which continues", lost.address);
            return (Succession::Detach, reason);
        }
        LeaderAnswer::Follows => {
            let reason = "it was cut off from the one that leads, which the one at";
            return (Succession::Detach, format!("{reason} {} follows still", lost.address));
        }
        LeaderAnswer::Nothing => {}
    }
    if !loss.job_runs && loss.ranks_given {
        let reason = "the first node has gone before anything had begun".into();
        return match loss.members_wait {
            true => (Succession::Rediscover, reason),
            false => (Succession::Detach, reason),
        };
    }
    let mut view = view.clone();
    view.launchers.remove(0);
    match view.leader() {
        Some(next) if next.id != own => {
            let (leader, reason) = (next.clone(), format!("the launcher at {} leads next", next.address));
            (Succession::Follow { leader, view }, reason)
        }
        _ => (Succession::Lead(view), "this launcher is the next in the order of joining".into()),
    }
}

/// Returns true if a leader with the view `own` must stop: another one has led its job to a later
/// generation.
pub(crate) fn is_deposed(own: &LauncherView, other: &LauncherView) -> bool {
    other.job_id == own.job_id && other.generation > own.generation
}

#[cfg(test)]
mod tests {
    use super::*;

    const KILLED: LeaderLoss = LeaderLoss {
        answer: LeaderAnswer::Nothing,
        tries: 0,
        job_runs: true,
        ranks_given: true,
        members_wait: true,
    };

    /// Launchers 10, 11 and 12.
    fn view() -> LauncherView {
        let launcher = |n: usize| LauncherInfo {
            id: 10 + n as u64,
            node_rank: n,
            address: ([127, 0, 0, 1], 1 + n as u16).into(),
        };
        let mut view = LauncherView::new("job", "majority".into(), launcher(0));
        view.launchers.extend([launcher(1), launcher(2)]);
        view
    }

    fn outcome(view: &LauncherView, own: u64, loss: LeaderLoss) -> Succession {
        succeed(view, own, loss).0
    }

    #[test]
    fn all_agree_that_the_next_in_the_order_of_joining_leads() {
        let Succession::Lead(second) = outcome(&view(), 11, KILLED) else { panic!("the second follows") };
        assert_eq!(second.leader().map(|leader| leader.id), Some(11));
        let Succession::Follow { leader, view: third } = outcome(&view(), 12, KILLED) else {
            panic!("the third leads beside the second")
        };
        assert_eq!(leader.id, 11);
        assert_eq!(third.launchers, second.launchers);
        let Succession::Lead(third) = outcome(&third, 12, KILLED) else { panic!("nobody else is left") };
        assert_eq!(third.launchers.len(), 1);
    }

    #[test]
    fn a_launcher_cut_off_from_a_live_leader_reconnects_and_does_not_lead() {
        let cut_off = LeaderLoss { answer: LeaderAnswer::Leads, ..KILLED };
        let Succession::Follow { leader, .. } = outcome(&view(), 11, cut_off) else { panic!("it leads") };
        assert_eq!(leader.id, 10);
        let (outcome, reason) = succeed(&view(), 11, LeaderLoss { tries: TRIES, ..cut_off });
        assert_eq!(outcome, Succession::Detach);
        assert!(reason.contains("cut off") && reason.contains("127.0.0.1:1"), "{reason}");
    }

    #[test]
    fn a_launcher_whose_leader_follows_another_one_is_cut_off() {
        let mut second = view();
        second.launchers.remove(0);
        let answer = LeaderAnswer::of(&second, Some(view()));
        assert_eq!(answer, LeaderAnswer::Follows);
        let (outcome, reason) = succeed(&second, 12, LeaderLoss { answer, ..KILLED });
        assert_eq!(outcome, Succession::Detach);
        assert!(reason.contains("127.0.0.1:2 follows still"), "{reason}");
        assert_eq!(LeaderAnswer::of(&view(), Some(view())), LeaderAnswer::Leads);
        assert_eq!(LeaderAnswer::of(&view(), None), LeaderAnswer::Nothing);
        let another = LauncherView { job_id: 99, ..view() };
        assert_eq!(LeaderAnswer::of(&view(), Some(another)), LeaderAnswer::Nothing);
    }

    #[test]
    fn a_job_that_has_not_begun_is_searched_again_if_node_0_begins_it() {
        let early = LeaderLoss { job_runs: false, ..KILLED };
        assert_eq!(outcome(&view(), 11, early), Succession::Rediscover);
        assert_eq!(outcome(&view(), 11, LeaderLoss { members_wait: false, ..early }), Succession::Detach);
        let numbered = LeaderLoss { ranks_given: false, ..early };
        assert!(matches!(outcome(&view(), 11, numbered), Succession::Lead(_)));
    }

    #[test]
    fn the_leader_of_the_later_generation_is_right() {
        let (first, mut second) = (view(), view());
        assert!(!is_deposed(&first, &second));
        second.generation += 1;
        assert!(is_deposed(&first, &second) && !is_deposed(&second, &first));
        second.job_id += 1;
        assert!(!is_deposed(&first, &second), "another job at the same place");
    }
}
