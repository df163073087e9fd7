"""Schedules as code: periodic tasks that a file declares, each under its name.

reading    a file (TOML or JSON) becomes declarations, checked by what checks submissions
planning   what of the cluster has to change so that it is as declared
applying   makes these changes, beside others who do the same
interrupts a change is not left half done by Ctrl-C
writing    tasks of the cluster as a file
playing    declarations in virtual time
findings   what that comes to
"""
