//! Where the skills are that goose tells of.
//!
//! goose lists its skills among its slash commands, those of the workspace (`.agents/skills/*/SKILL.md` and the like)
//! beside its own, without their places (measured on 1.52). Another of its answers has the places, and all that is
//! written in the skills. So that is asked for only when there is a skill that was not there before.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::session::agent::Skill;

/// The places of one goose's skills. Cheap to clone, all the same.
#[derive(Clone, Debug, Default)]
pub struct SkillPlaces {
    /// A standard mutex: held for a few lines, never across an await.
    places: Arc<Mutex<Places>>,
}

#[derive(Debug, Default)]
struct Places {
    /// The names that goose told last.
    told: Vec<String>,
    /// By the skills' names; `None` of one that is not in the session's directory.
    known: BTreeMap<String, Option<String>>,
}

impl SkillPlaces {
    /// Says of the skills, which goose has just told, where they are, as far as that is known.
    pub(super) fn fill_in(&self, skills: &mut [Skill]) {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.told = skills.iter().map(|skill| skill.name.clone()).collect();
        for skill in skills {
            skill.path = places.known.get(&skill.name).cloned().flatten();
        }
    }

    /// The names of all skills that goose tells of, when there are some whose places are to be asked for.
    #[must_use]
    pub fn to_ask_for(&self) -> Option<Vec<String>> {
        let places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let is_missing = places.told.iter().any(|name| !places.known.contains_key(name));
        is_missing.then(|| places.told.clone())
    }

    /// Takes the folders of the skills that were `asked` for; `directory` is the session's, as goose was told it. What is
    /// elsewhere is not told on. A skill that goose has told of since may not be in its answer, and is asked for later.
    pub fn learn(&self, asked: Vec<String>, folders: &BTreeMap<String, PathBuf>, directory: &Path) {
        let within = |name: &String| {
            let path = folders.get(name)?.strip_prefix(directory).ok()?;
            path.to_str().map(ToOwned::to_owned)
        };
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.known = asked.into_iter().map(|name| (name.clone(), within(&name))).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(places: &SkillPlaces, names: &[&str]) -> Vec<Option<String>> {
        let skill = |name: &&str| Skill { name: (*name).to_owned(), description: String::new(), path: None };
        let mut skills: Vec<Skill> = names.iter().map(skill).collect();
        places.fill_in(&mut skills);
        skills.into_iter().map(|skill| skill.path).collect()
    }

    fn folders(folders: &[(&str, &str)]) -> BTreeMap<String, PathBuf> {
        folders.iter().map(|(name, path)| ((*name).to_owned(), PathBuf::from(path))).collect()
    }

    #[test]
    fn places_are_asked_for_when_there_is_a_new_skill() {
        let places = SkillPlaces::default();
        assert_eq!(places.to_ask_for(), None);
        assert_eq!(told(&places, &["mine", "own", "users"]), [None, None, None]);
        let asked = places.to_ask_for().unwrap();
        let found =
            folders(&[("mine", "/work/.agents/skills/mine"), ("users", "/home/u/.agents/skills/users")]);
        places.learn(asked, &found, Path::new("/work"));
        assert_eq!(places.to_ask_for(), None, "also of those that are elsewhere");
        let mine = Some(".agents/skills/mine".to_owned());
        assert_eq!(told(&places, &["own", "mine"]), [None, mine]);
        assert_eq!(places.to_ask_for(), None);
        told(&places, &["mine", "another"]);
        assert_eq!(places.to_ask_for().unwrap(), ["mine", "another"]);
    }

    #[test]
    fn a_skill_that_is_told_between_the_question_and_its_answer_is_asked_for_later() {
        let places = SkillPlaces::default();
        told(&places, &["mine"]);
        let asked = places.to_ask_for().unwrap();
        told(&places, &["mine", "new"]);
        let found = folders(&[("mine", "/work/.agents/skills/mine")]);
        places.learn(asked, &found, Path::new("/work"));
        assert_eq!(places.to_ask_for().unwrap(), ["mine", "new"]);
    }
}
