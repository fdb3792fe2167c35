"""The repository of breaker states for asyncio: the same names and rules, one thread hop per call."""

from __future__ import annotations

from holdfast.breakers.repository import CircuitBreakerStateRepository
from holdfast.store.hop import Hopping, hop


class AsyncCircuitBreakerStateRepository(Hopping[CircuitBreakerStateRepository]):
    """See `CircuitBreakerStateRepository`; made of one: `AsyncCircuitBreakerStateRepository(repository)`."""

    get_or_create = hop(CircuitBreakerStateRepository.get_or_create)
    get_by_service_name = hop(CircuitBreakerStateRepository.get_by_service_name)
    get_all_states = hop(CircuitBreakerStateRepository.get_all_states)
    get_open_states = hop(CircuitBreakerStateRepository.get_open_states)
    update_state = hop(CircuitBreakerStateRepository.update_state)
    update_metadata = hop(CircuitBreakerStateRepository.update_metadata)
    reset = hop(CircuitBreakerStateRepository.reset)
    delete_state = hop(CircuitBreakerStateRepository.delete_state)

    record_failure = hop(CircuitBreakerStateRepository.record_failure)
    record_success = hop(CircuitBreakerStateRepository.record_success)
    record_success_with_close_check = hop(CircuitBreakerStateRepository.record_success_with_close_check)
    record_failure_with_open_check = hop(CircuitBreakerStateRepository.record_failure_with_open_check)

    set_manual_control = hop(CircuitBreakerStateRepository.set_manual_control)
    clear_manual_control = hop(CircuitBreakerStateRepository.clear_manual_control)
    clear_expired_pins = hop(CircuitBreakerStateRepository.clear_expired_pins)
    atomic_force_open = hop(CircuitBreakerStateRepository.atomic_force_open)
    atomic_force_close = hop(CircuitBreakerStateRepository.atomic_force_close)
    atomic_reset = hop(CircuitBreakerStateRepository.atomic_reset)

    try_acquire_half_open_slot = hop(CircuitBreakerStateRepository.try_acquire_half_open_slot)
    release_half_open_slot = hop(CircuitBreakerStateRepository.release_half_open_slot)
    reset_half_open_count = hop(CircuitBreakerStateRepository.reset_half_open_count)
