//! Where a worker is in the run when it comes, and after others have died or come: its course, and whether it
//! writes.

use crate::checkpoints;
use crate::course::Course;
use crate::desk::Desk;
use crate::error::Error;
use crate::meter::StepRow;
use crate::worker::Worker;

impl Worker<'_> {
    /// Brings the course to where the replica is; and both to the last checkpoint, where a run continues. A
    /// collective.
    pub(crate) fn find_place(&mut self, course: &mut Course) -> Result<(), Error> {
        let (steps, epoch, total) = (self.steps(), self.sampler.steps(), self.total);
        let resumes = self.folder.as_ref().filter(|_| self.resume && course.position.step == 0);
        let Some(folder) = resumes else {
            self.follow(course);
            return Ok(());
        };
        let position = match steps {
            0 => Some(checkpoints::resume(&mut self.ddp, folder)?),
            // The others had read it when one of them died.
            _ => checkpoints::position(folder, steps),
        };
        *course = match &position {
            Some(position) => Course::resumed(position, epoch, total),
            None => Course::at(steps, epoch, total),
        };
        if course.is_over() && !course.is_unrecorded() {
            return Err(Error::Complete { path: folder.path().to_owned(), total });
        }
        Ok(())
    }

    /// After the members have changed: the course goes where the replica is, which may be a step before or
    /// after. Of a step that has come to its end elsewhere only, or after which something failed here, the
    /// row is still missing.
    fn follow(&self, course: &mut Course) {
        let (next, steps) = (course.position.step, self.steps());
        let last = self.ddp.with_replica(|replica| replica.last_step());
        if let Some(last) = last.filter(|last| last.step == next && steps == next + 1) {
            let (epoch, rate) = (course.position.epoch, self.rate.at(next));
            course.add(StepRow::unseen(&last, epoch, rate, self.began.elapsed()));
        }
        course.go_to(steps);
    }

    /// Whoever is rank 0 writes; that may have been another worker before.
    pub(crate) fn take_desk(
        &self,
        course: &Course,
        desk: &mut Option<Desk>,
        begins: bool,
    ) -> Result<(), Error> {
        let Some(folder) = self.folder.as_ref().filter(|_| self.ddp.rank().0 == 0) else {
            *desk = None;
            return Ok(());
        };
        let generation = self.ddp.with_replica(|replica| replica.generation());
        let world = self.ddp.group().world_size();
        let begin =
            |desk: &mut Desk| generation.into_iter().for_each(|one| desk.generations.begin(one, world));
        if let Some(desk) = desk {
            desk.follow(course);
            begin(desk);
            return Ok(());
        }
        if folder.is_complete() {
            // Another worker was rank 0 when the last death came, and has come to the end nevertheless.
            return Ok(());
        }
        let continued = self.resume || course.position.step > 0;
        let mut new = Desk::new(folder.clone(), self.config, course, self.total);
        match begins {
            true => new.begin(course, continued)?,
            false => new.follow(course),
        }
        if continued {
            let (path, step) = (folder.path().display(), course.position.step);
            new.progress.say(&format!("continuing {path} after step {step}"));
        }
        new.progress.say(&self.describe());
        begin(&mut new);
        if course.is_over() && !course.is_unrecorded() && !folder.has_checkpoint(course.position.step) {
            // The last rank 0 has died while it wrote it.
            new.checkpoints.take(&self.ddp, course)?;
        }
        *desk = Some(new);
        Ok(())
    }
}
