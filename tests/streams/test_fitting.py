from streams import fitting


def test_what_warms_the_fitting_process_up_fits() -> None:
    fitting._warm_up()  # in the process itself a failure would go unseen


def test_the_fitting_process_takes_work_and_ends() -> None:
    with fitting.fitting_process() as executor:
        assert executor.submit(pow, 2, 10).result(timeout=60) == 1024
