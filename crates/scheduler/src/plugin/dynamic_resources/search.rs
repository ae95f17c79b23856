//! Which devices do a pod's claims get on a node?
//!
//! One claim after the other, one request after the other, one device after the other is tried; what leads nowhere is
//! taken back. The first way on which everybody gets what they asked for is the answer.
//!
//! Invariant: no search takes more than so many steps.

use mizzen_kinds::tolerations::first_untolerated;
use mizzen_value::Str;
use mizzen_value::quantity::Quantity;

use super::capacity::take;
use super::constraint::Constraint;
use super::pool::{Counters, Offer, Pool, State};
use super::wish::{Wish, Wishes};
use crate::devices::{Amounts, DeviceId, Taken, add};
use crate::{HashMap, HashSet};

/// How many devices a claim can have.
const MOST_DEVICES: usize = 32;
/// How many devices are tried.
const MOST_STEPS: usize = 50_000;

/// A device that a claim gets.
#[derive(Clone)]
pub(super) struct Got<'a> {
    pub wish: &'a Wish,
    pub offer: &'a Offer,
    /// How much of it, if others may have the rest.
    pub amounts: Option<Amounts>,
}

/// Finds devices for claims.
pub(super) struct Search<'a> {
    pools: &'a [Pool],
    taken: &'a Taken,
    claims: &'a [(Str, Wishes)],
    constraints: Vec<Vec<Constraint>>,
    /// What the claims before have, and this one so far.
    got: Vec<Vec<Got<'a>>>,
    /// Whether devices suit wishes, as far as somebody asked.
    suits: HashMap<(*const Wish, *const Offer), bool>,
    n_steps: usize,
}

/// Where a search is.
#[derive(Clone, Copy)]
struct At {
    claim: usize,
    request: usize,
    alternative: usize,
    /// How many devices the wish has.
    n_devices: usize,
    /// From where on devices are tried: the order in which one wish gets them makes no difference.
    from: usize,
}

/// Why a way does not lead on.
enum Dead {
    /// Nothing fits.
    End,
    /// There would be more devices than a claim can have: only fewer would help.
    TooMany,
    /// It cannot be known.
    Unknown(Failure),
}

/// Why claims get no devices.
#[derive(Debug)]
pub(super) enum Failure {
    /// The node has too few.
    Unfit(&'static str),
    /// It takes too long to find out.
    Late,
    /// Something is wrong with a claim or a class, wherever the pod is.
    Error(String),
}

impl<'a> Search<'a> {
    /// What each claim gets. Claims come with their names.
    pub(super) fn run(
        claims: &'a [(Str, Wishes)],
        pools: &'a [Pool],
        taken: &'a Taken,
    ) -> Result<Vec<Vec<Got<'a>>>, Failure> {
        let constraints = claims
            .iter()
            .map(|(_, wishes)| wishes.constraints.clone())
            .collect();
        let got = claims.iter().map(|_| Vec::new()).collect();
        let mut search = Search {
            pools,
            taken,
            claims,
            constraints,
            got,
            suits: HashMap::default(),
            n_steps: 0,
        };
        search.check_pools().map_err(Failure::Error)?;
        match search.claim(0) {
            Ok(()) => Ok(search.got),
            Err(Dead::Unknown(failure)) => Err(failure),
            Err(_) if pools.iter().any(|pool| pool.state == State::Invalid) => {
                Err(Failure::Unfit("invalid resource pools were encountered"))
            }
            Err(_) => Err(Failure::Unfit("cannot allocate all claims")),
        }
    }

    /// Whoever wants all devices must know them all.
    fn check_pools(&self) -> Result<(), String> {
        let broken = self.pools.iter().find(|pool| pool.state != State::Sound);
        let wishes = |(name, wishes): &'a (Str, Wishes)| {
            wishes
                .requests
                .iter()
                .flatten()
                .map(move |wish| (name, wish))
        };
        let mut all = self
            .claims
            .iter()
            .flat_map(wishes)
            .filter(|(_, wish)| wish.count.is_none());
        let (Some(pool), Some((claim, wish))) = (broken, all.next()) else {
            return Ok(());
        };
        let state = if pool.state == State::Incomplete {
            "being updated"
        } else {
            "invalid"
        };
        let base = wish.name.rsplit('/').next().unwrap_or_default();
        Err(format!(
            "claim {claim}, request {base}: asks for all devices, but resource pool {}/{} is currently {state}",
            pool.driver, pool.name
        ))
    }

    fn claim(&mut self, claim: usize) -> Result<(), Dead> {
        if claim == self.claims.len() {
            return Ok(());
        }
        self.request(claim, 0)
    }

    /// Goes on with a request of a claim, or with the next claim.
    fn request(&mut self, claim: usize, request: usize) -> Result<(), Dead> {
        let claims = self.claims;
        let Some(alternatives) = claims[claim].1.requests.get(request) else {
            // Another claim's fewer devices might help the next one.
            return self.claim(claim + 1).map_err(|dead| match dead {
                Dead::TooMany => Dead::End,
                other => other,
            });
        };
        let mut dead = Dead::TooMany;
        for alternative in 0..alternatives.len() {
            match self.devices(At {
                claim,
                request,
                alternative,
                n_devices: 0,
                from: 0,
            }) {
                Ok(()) => return Ok(()),
                Err(Dead::TooMany) => {}
                Err(Dead::End) => dead = Dead::End,
                Err(error) => return Err(error),
            }
        }
        Err(dead)
    }

    /// Goes on with the devices of a wish.
    fn devices(&mut self, at: At) -> Result<(), Dead> {
        let claims = self.claims;
        let wish = &claims[at.claim].1.requests[at.request][at.alternative];
        match wish.count {
            None => self.all_devices(at, wish),
            Some(count) if at.n_devices == count => self.request(at.claim, at.request + 1),
            Some(count) if self.got[at.claim].len() + count - at.n_devices > MOST_DEVICES => {
                Err(Dead::TooMany)
            }
            Some(_) => self.next_device(at, wish),
        }
    }

    /// Tries one device after the other.
    fn next_device(&mut self, at: At, wish: &'a Wish) -> Result<(), Dead> {
        let pools = self.pools;
        let sound = pools.iter().filter(|pool| pool.state == State::Sound);
        let offers = sound.flat_map(|pool| pool.offers.iter().map(move |offer| (pool, offer)));
        for (index, (pool, offer)) in offers.enumerate().skip(at.from) {
            if !self.suit(wish, offer)? || !self.take(at.claim, wish, pool, offer) {
                continue;
            }
            match self.devices(At {
                n_devices: at.n_devices + 1,
                from: index + 1,
                ..at
            }) {
                Err(Dead::End) => self.give_back(at.claim),
                Err(dead) => {
                    self.give_back(at.claim);
                    return Err(dead);
                }
                Ok(()) => return Ok(()),
            }
        }
        Err(Dead::End)
    }

    /// Takes every device that suits, or none.
    fn all_devices(&mut self, at: At, wish: &'a Wish) -> Result<(), Dead> {
        let pools = self.pools;
        let mut wanted = Vec::new();
        for pool in pools {
            for offer in &pool.offers {
                if self.suit(wish, offer)?
                    && take(&wish.capacity, &offer.device, &self.amounts_of(offer)).is_some()
                {
                    wanted.push((pool, offer));
                }
            }
        }
        if wanted.is_empty() {
            return Err(Dead::End);
        }
        if self.got[at.claim].len() + wanted.len() > MOST_DEVICES {
            return Err(Dead::TooMany);
        }
        let n_before = self.got[at.claim].len();
        let all = wanted
            .into_iter()
            .all(|(pool, offer)| self.take(at.claim, wish, pool, offer));
        let outcome = if all {
            self.request(at.claim, at.request + 1)
        } else {
            Err(Dead::End)
        };
        if outcome.is_err() {
            while self.got[at.claim].len() > n_before {
                self.give_back(at.claim);
            }
        }
        outcome
    }

    /// Whether a device suits the selectors of a wish.
    fn suit(&mut self, wish: &'a Wish, offer: &'a Offer) -> Result<bool, Dead> {
        self.n_steps += 1;
        if self.n_steps > MOST_STEPS {
            return Err(Dead::Unknown(Failure::Late));
        }
        let key = (std::ptr::from_ref(wish), std::ptr::from_ref(offer));
        if let Some(known) = self.suits.get(&key) {
            return Ok(*known);
        }
        let suits = wish
            .selectors
            .suit(&offer.id.0, &offer.device)
            .map_err(|error| Dead::Unknown(Failure::Error(error)))?;
        self.suits.insert(key, suits);
        Ok(suits)
    }

    /// Takes a device for a wish, if it can be had.
    fn take(&mut self, claim: usize, wish: &'a Wish, pool: &'a Pool, offer: &'a Offer) -> bool {
        if self.is_in_use(claim, wish, offer)
            || first_untolerated(&offer.taints, &wish.tolerations).is_some()
            || !self.has_counters(pool, offer)
        {
            return false;
        }
        let Some(amounts) = take(&wish.capacity, &offer.device, &self.amounts_of(offer)) else {
            return false;
        };
        let constraints = &mut self.constraints[claim];
        if let Some(n_added) = constraints
            .iter_mut()
            .position(|one| !one.add(&wish.name, offer))
        {
            constraints[..n_added]
                .iter_mut()
                .for_each(|one| one.remove(&wish.name));
            return false;
        }
        let amounts = offer.is_shared.then_some(amounts);
        self.got[claim].push(Got {
            wish,
            offer,
            amounts,
        });
        true
    }

    /// Takes back the last device that a claim got.
    fn give_back(&mut self, claim: usize) {
        if let Some(got) = self.got[claim].pop() {
            self.constraints[claim]
                .iter_mut()
                .for_each(|one| one.remove(&got.wish.name));
        }
    }

    /// Whether somebody has a device for himself. Administrators have it besides, but not twice.
    fn is_in_use(&self, claim: usize, wish: &Wish, offer: &Offer) -> bool {
        let has = |got: &[Got]| got.iter().any(|got| got.offer.id == offer.id);
        match (offer.is_shared, wish.is_admin) {
            (true, _) => self.taken.whole.contains(&offer.id),
            (false, true) => has(&self.got[claim]),
            (false, false) => {
                self.taken.whole.contains(&offer.id) || self.got.iter().any(|got| has(got))
            }
        }
    }

    /// What others have of a device that can be shared.
    fn amounts_of(&self, offer: &Offer) -> Amounts {
        let mut amounts = self.taken.parts.get(&offer.id).cloned().unwrap_or_default();
        for got in self
            .got
            .iter()
            .flatten()
            .filter(|got| got.offer.id == offer.id)
        {
            got.amounts.iter().for_each(|own| add(&mut amounts, own));
        }
        amounts
    }

    /// Whether a pool has what a device takes of its counters. Who gets a part of a device takes none: they are taken.
    fn has_counters(&self, pool: &Pool, offer: &Offer) -> bool {
        let is_begun = offer.is_shared
            && (self.taken.parts.contains_key(&offer.id)
                || self
                    .got
                    .iter()
                    .flatten()
                    .any(|got| got.offer.id == offer.id));
        offer.consumes.is_empty() || is_begun || {
            let mut left = pool.counters.clone();
            let mut seen: HashSet<&DeviceId> = HashSet::default();
            let got = self.got.iter().flatten().map(|got| got.offer);
            let ours =
                got.filter(|other| (&*other.id.0, &*other.id.1) == (&*pool.driver, &*pool.name));
            let ours = ours.filter(|other| seen.insert(&other.id));
            ours.chain([offer])
                .for_each(|other| subtract(&mut left, &other.consumes));
            !left.values().any(Quantity::is_negative)
        }
    }
}

fn subtract(left: &mut Counters, consumed: &Counters) {
    for (counter, amount) in consumed {
        if let Some(left) = left.get_mut(counter) {
            *left = left.sub(amount);
        }
    }
}
