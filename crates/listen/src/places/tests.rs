use super::*;

const LIMITS: Limits = Limits::new("test", 6, 4);

fn peer(last: u8) -> IpAddr {
    [192, 0, 2, last].into()
}

fn over(places: &[&Place]) -> Vec<bool> {
    places.iter().map(|place| place.is_over()).collect()
}

#[test]
fn a_peer_with_its_share_loses_its_own_oldest_connection() {
    let (places, now) = (Places::new(LIMITS), Instant::now());
    let honest = places.take(peer(2), now).unwrap();
    let flood: Vec<_> = (0..9).map(|_| places.take(peer(1), now).unwrap()).collect();
    assert!(!honest.is_over());
    let dropped: Vec<_> = flood.iter().map(Place::is_over).collect();
    assert_eq!(dropped, [true, true, true, true, true, false, false, false, false]);
}

#[test]
fn when_all_places_are_held_the_peer_with_the_most_loses_one() {
    let (places, now) = (Places::new(LIMITS), Instant::now());
    let alone = places.take(peer(9), now).unwrap();
    let many: Vec<_> = (0..4).map(|_| places.take(peer(1), now).unwrap()).collect();
    let other = places.take(peer(2), now).unwrap();
    let honest = places.take(peer(3), now).unwrap();
    assert_eq!(over(&[&alone, &many[0], &many[1], &other, &honest]), [false, true, false, false, false]);
}

#[test]
fn a_connection_that_waits_goes_before_one_that_is_served_and_a_trusted_one_stays() {
    let limits = Limits { connections: 3, per_peer: 3, ..LIMITS };
    let (places, now) = (Places::new(limits), Instant::now());
    let [trusted, served, waiting] = [(); 3].map(|()| places.take(peer(1), now).unwrap());
    trusted.trust();
    let serving = served.serve(now);
    let next = places.take(peer(2), now).unwrap();
    assert_eq!(over(&[&trusted, &served, &waiting]), [false, false, true]);
    next.trust();
    let last = places.take(peer(3), now).unwrap();
    assert_eq!(over(&[&trusted, &served, &next]), [false, true, false]);
    drop(serving);
    last.trust();
    assert!(places.take(peer(4), now).is_none(), "all peers have shown a token");
    drop(trusted);
    assert!(places.take(peer(4), now).is_some());
}

#[test]
fn addresses_of_one_ipv6_network_and_both_forms_of_an_ipv4_address_are_one_peer() {
    let limits = Limits { per_peer: 1, ..LIMITS };
    let (places, now) = (Places::new(limits), Instant::now());
    let take = |address: &str| places.take(address.parse().unwrap(), now).unwrap();
    let (first, other) = (take("2001:db8:0:1::1"), take("2001:db8:0:2::1"));
    let _second = take("2001:db8:0:1:ffff::2");
    assert_eq!(over(&[&first, &other]), [true, false]);
    let v4 = take("192.0.2.1");
    let _mapped = take("::ffff:192.0.2.1");
    assert!(v4.is_over());
}

#[test]
fn deadlines_hold_for_every_state() {
    let (places, now) = (Places::new(LIMITS), Instant::now());
    let [waiting, served, blocked, trusted] = [1, 2, 3, 4].map(|last| places.take(peer(last), now).unwrap());
    let _serving = served.serve(now);
    blocked.trust();
    blocked.blocked(Some(now));
    trusted.trust();
    let all = [&waiting, &served, &blocked, &trusted];
    places.sweep(now + Duration::from_secs(9));
    assert_eq!(over(&all), [false; 4]);
    places.sweep(now + Duration::from_secs(10));
    assert_eq!(over(&all), [true, false, true, false]);
    places.sweep(now + Duration::from_secs(30));
    assert_eq!(over(&all), [true, true, true, false]);
    places.sweep(now + Duration::from_hours(1));
    assert!(!trusted.is_over());
}

#[test]
fn a_place_is_free_when_its_connection_is_gone() {
    let (places, now) = (Places::new(LIMITS), Instant::now());
    for _ in 0..100 {
        let place = places.take(peer(1), now).unwrap();
        drop(places.take(peer(1), now).unwrap());
        assert!(!place.is_over());
    }
    assert!(places.is_empty());
    assert!(places.held.lock().peers.is_empty());
}
